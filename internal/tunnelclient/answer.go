package tunnelclient

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/holdfast-hub/holdfast/wire"
)

// maxRefusal bounds what is read of an answer that refuses, in bytes.
const maxRefusal = 16 << 10

// answered says what it means that the hub has not switched to a WebSocket.
func answered(resp *http.Response) error {
	words := fmt.Sprintf("it answered %d", resp.StatusCode)
	var body wire.ErrorBody
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	_ = resp.Body.Close()
	if err == nil && json.Unmarshal(b, &body) == nil && body.Error.Message != "" {
		words = body.Error.Message
	}
	switch status := resp.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fmt.Errorf("%w: %s", ErrRefused, words)
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: what answers there is no hub, or one that takes no tunnels", ErrInvalid)
	case status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return fmt.Errorf("the hub takes no tunnel just now: %s", words)
	}
	return fmt.Errorf("%w: %s", ErrInvalid, words)
}
