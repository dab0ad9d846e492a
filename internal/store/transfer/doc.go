// Package transfer copies a whole hub from one store into another, table by table, and
// proves that what arrived is what was sent.
//
// A Source gives the rows of each table in the order of a number; a Target writes them
// in chunks and remembers, in the same transaction, how far it has come. So a copy that
// was interrupted goes on where it was. At the end both sides are read once more, and
// compared by count and by a checksum that does not depend on the order of rows.
package transfer
