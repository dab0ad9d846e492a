// Command holdfast is the hub, and the command line to use it.
package main

func main() {}
