package vault

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// masterKey is a Tink keyset for authenticated encryption.
type masterKey struct {
	text string // the keyset as it stands in the environment or a file: base64, one line
	id   string // Tink's id of the primary key, random and public
	aead tink.AEAD
}

// NewKey makes a master key, in the form that HOLDFAST_MASTER_KEY and a key file have.
func NewKey() (string, error) {
	k, err := newKey()
	if err != nil {
		return "", err
	}
	return k.text, nil
}

// newKey makes a key of XAES-256-GCM, whose nonces are long enough to be random however
// much is sealed.
func newKey() (*masterKey, error) {
	h, err := keyset.NewHandle(aead.XAES256GCM192BitNonceKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("make a master key: %w", err)
	}
	var b bytes.Buffer
	if err := insecurecleartextkeyset.Write(h, keyset.NewBinaryWriter(&b)); err != nil {
		return nil, fmt.Errorf("write a master key: %w", err)
	}
	return useKey(h, b.Bytes())
}

// errNoKey says nothing of what it was given: that may be a key all the same.
var errNoKey = errors.New("it is no master key; that is one line of text, as holdfast keys new prints it")

// parseKey reads a key, whatever space is around it.
func parseKey(text string) (*masterKey, error) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, errNoKey
	}
	h, err := insecurecleartextkeyset.Read(keyset.NewBinaryReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, errNoKey
	}
	k, err := useKey(h, raw)
	if err != nil {
		return nil, errNoKey
	}
	return k, nil
}

func useKey(h *keyset.Handle, raw []byte) (*masterKey, error) {
	primary, err := h.Primary()
	if err != nil {
		return nil, err
	}
	a, err := aead.New(h)
	if err != nil {
		return nil, err
	}
	return &masterKey{base64.StdEncoding.EncodeToString(raw), fmt.Sprintf("%08x", primary.KeyID()), a}, nil
}

func (k *masterKey) seal(secret []byte, about string) ([]byte, error) {
	sealed, err := k.aead.Encrypt(secret, []byte(about))
	if err != nil {
		return nil, fmt.Errorf("seal a secret: %w", err)
	}
	return sealed, nil
}

func (k *masterKey) open(sealed []byte, about string) ([]byte, error) {
	secret, err := k.aead.Decrypt(sealed, []byte(about))
	if err != nil {
		return nil, errSealed
	}
	return secret, nil
}
