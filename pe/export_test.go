package pe

// Asleep reports whether a goroutine of the PE sleeps, or is about to, on the
// PE's bell.
func Asleep(p *PE) bool { return p.sleeper.Bell().Armed().Load() != 0 }
