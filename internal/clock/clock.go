// Package clock is this machine's clock as the hub reads it. Only a build for tests, with
// the tag wrongclock, has one that can be wrong.
package clock
