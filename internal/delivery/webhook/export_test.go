package webhook

import "github.com/holdfast-hub/holdfast/internal/delivery"

// Answer is what a 2xx means.
func (w *Deliverer) Answer(contentType string, body []byte) delivery.Outcome {
	return w.answer(contentType, body)
}
