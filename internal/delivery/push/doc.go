// Package push sends push notifications: it tells the callers of tasks of each event,
// at the URL that they asked to be told at (A2A section 4.3.3).
//
// The outbox is in the store; the sender borrows from it what is due, and says how far
// it came. So what was not delivered survives a crash, and is delivered in the order of
// the events, each at least once: a receiver that gets one twice knows it by its
// webhook-id. One configuration has at most one request under way; different ones go in
// parallel, and those to one host or of one caller may take only a part of what there is
// room for, as may all together that failed before, so that dead hosts hold up nobody else.
//
// A notification is delivered when the receiver answers 2xx. Redirects are not
// followed and count as failures like every other answer. What failed is tried again,
// after a random time below a bound that doubles with each try, and not before the
// receiver's Retry-After (an hour at most). It is given up when Options.GiveUp has
// passed since the receiver began to fail, or since the event happened if that was later;
// or at once if the receiver says 410 Gone. The owner sees it as a failure and can have
// it delivered again. Every event is tried at least once, however late it is its turn,
// and so the end of a task is.
//
// What a notification looks like: see message.
package push
