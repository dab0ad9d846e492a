package httpx

// Parkable and RequestText are for tests of what a parked request becomes.
var (
	Parkable    = parkable
	RequestText = requestText
)
