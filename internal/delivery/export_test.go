package delivery

// Finishing reports whether an instance takes no more tasks.
func Finishing(d *Dispatcher, address, instance string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.routeOf(address, instance)
	return r != nil && r.link != nil && r.link.finishing
}

// Forget ends the wait for an instance that is away.
func Forget(d *Dispatcher, address, instance string) {
	d.mu.Lock()
	r := d.routeOf(address, instance)
	d.mu.Unlock()
	d.forget(r)
}
