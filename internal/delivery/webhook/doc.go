// Package webhook delivers tasks as HTTP requests: each task is one POST to the
// endpoint of its address, and the answer is the result, or says that the result will
// follow.
//
// What is sent is described at request, and what an answer means at answer. A 2xx is the
// callee's answer. 408, 429, 5xx, a connection that breaks and an answer that does not
// come in time are a lost delivery, which is repeated; any other status is final, and
// redirects, which are not followed, are too. What did not leave the hub was not sent.
//
// Nothing of an answer that is no 2xx is shown to anybody but its status.
package webhook
