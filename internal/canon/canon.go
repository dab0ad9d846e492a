// Package canon turns messages, parts and artifacts between the JSON that clients
// write and the canonical A2A 1.0 JSON that the hub stores.
//
// Canonical means: members under their ProtoJSON camelCase names in one fixed
// order, enums by name, no members that hold their default, no insignificant white
// space outside of metadata and data (which are compacted), and without taskId and
// contextId, which belong to the task and are put back when the message is shown.
// Numbers and strings keep their exact text.
package canon
