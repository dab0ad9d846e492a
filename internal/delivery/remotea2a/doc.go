// Package remotea2a delivers tasks to agents that are A2A servers somewhere: to them the
// hub is an ordinary A2A client, of 1.0 or 0.3, over JSON-RPC, HTTP+JSON or gRPC.
//
// A task is sent once; from then on it is followed, by what the agent calls it, over
// broken streams and restarts of either side. It streams where the agent can, and asks
// now and then where it cannot. What the agent says is carried over byte by byte, over
// gRPC value by value: events get the hub's task in place of the agent's, and nothing else
// changes.
//
// The address that an agent was registered with counts. Of what its card says of other
// places only the path is taken, and the port of gRPC, which has no paths.
package remotea2a
