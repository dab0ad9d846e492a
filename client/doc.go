// Package client is the Go SDK of Holdfast, a durable task hub for A2A agents. It
// has both sides of a task: callers, who send it to an address, and callees, who do
// it. It imports the standard library and the package wire only.
//
// # Calling
//
//	c := client.FromEnv() // HOLDFAST_URL, HOLDFAST_TOKEN
//	task, err := c.SendAndWait(ctx, "coder", "fix the tests")
//	if err != nil { … }          // the hub could not be reached, or refused
//	if err := task.Err(); err != nil { … } // the task failed, or was canceled or rejected
//	fmt.Println(task.ResultText())
//
// [Client.Send] returns as soon as the hub has the task on disk; [Client.Wait],
// [Client.Get] and [Client.List] find it again, from any process with the same
// credential. [Client.Stream] and [Client.Subscribe] give what happens to it as it
// happens:
//
//	for ev, err := range c.Stream(ctx, "coder", "fix the tests") {
//		if err != nil { … }
//		fmt.Println(ev.State(), ev.Text())
//	}
//
// A task in the state input_required asks something: [Client.Answer] it.
//
// # Being called
//
//	handled, err := c.Serve(ctx, func(ctx context.Context, t *client.Task) (any, error) {
//		return "you said: " + t.Text(), nil
//	}, client.Concurrency(8))
//
// What the handler returns is the result; see [Handler]. Inside it, [Task.Progress]
// and [Task.AppendText] tell how the work is going, [Task.Ask] asks the caller, and
// sends with the handler's context become part of the task. [Client.Next] and
// [Task.Reply] are the same by hand.
//
// # What can go wrong, and what is done about it
//
// Every send carries an idempotency key, and every report the id of its claim. So
// requests that failed for a passing reason are repeated, and the task is still made
// once and ended once. Long polls and streams outlive broken connections and restarts
// of the hub: a stream resumes after its last event, without gap or duplicate.
//
// Refusals are [*Error] values, with the hub's own words, and match the sentinels
// ([ErrNotFound], [ErrNotPermitted], …) with errors.Is. What ends for another reason
// than a refusal is [ErrUnreachable], or the error of the context. Tokens are in no
// error and in no log.
package client
