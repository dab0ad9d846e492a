package delivery

// Forget ends the wait for an instance that is away.
func Forget(d *Dispatcher, address, instance string) {
	d.mu.Lock()
	r := d.routeOf(address, instance)
	d.mu.Unlock()
	d.forget(r)
}
