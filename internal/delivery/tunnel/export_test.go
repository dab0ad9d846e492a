package tunnel

// Heard reports whether all tunnels of a handle have said that they will give notice.
func Heard(h *Host, handle string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.links[handle] {
		if !l.heard.Load() {
			return false
		}
	}
	return len(h.links[handle]) > 0
}
