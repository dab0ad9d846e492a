package hub

import "context"

// Sealer seals secrets for keeping. What they are about is bound to them: the sealed
// form of one secret is of no use in the place of another.
type Sealer interface {
	// Seal encrypts a secret about something, such as "push/{task}/{config}".
	Seal(secret []byte, about string) ([]byte, error)
	// Open decrypts what Seal made. Its error shows neither the secret nor the key.
	Open(sealed []byte, about string) ([]byte, error)
}

// Secrets keeps sealed secrets. Stores never see one in the clear.
type Secrets interface {
	// Secret gives the sealed secret with that name; NotFound if there is none. A named
	// secret is sealed about its name.
	Secret(ctx context.Context, name string) ([]byte, error)
	// AddSecret keeps a sealed secret unless there is one with that name, and gives
	// the one that is kept, so that of several hubs that start at once all use the same.
	AddSecret(ctx context.Context, name string, sealed []byte) ([]byte, error)
	// Reseal replaces every sealed secret of the store, wherever it is kept, with what
	// f makes of it, in one transaction; about is what it was sealed with. Where f gives
	// nothing, the secret is dropped with all that is of no use without it. If f is nil
	// they stay as they are. The secret named as the last argument is not shown to f
	// but written as given, in the same transaction. f may be called more than once for
	// a secret. If it fails, nothing changes and its error is given back. What is
	// replaced is overwritten as far as the store can.
	Reseal(ctx context.Context, f func(sealed []byte, about string) ([]byte, error), name string, value []byte) error
}
