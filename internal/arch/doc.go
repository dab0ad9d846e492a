// Package arch holds the tests that keep the code's shape: which package may import
// which, where libraries and outbound connections may be used, that every package
// says what it is for, and that the documentation lists what the code has. It has no
// code of its own.
package arch
