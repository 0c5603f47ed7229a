package control

// patience lengthens the calm that must pass before something is given back. The calm doubles
// each time that giving back brought the trouble again, so that a load which persists is not
// tried again and again.
type patience struct {
	doubled int
	tried   bool // something was given back since the last trouble
}

// mostDoubled bounds the factor to 16.
const mostDoubled = 4

func (p *patience) factor() int { return 1 << p.doubled }

// trouble records that the calm has ended.
func (p *patience) trouble() {
	if p.tried {
		p.tried, p.doubled = false, min(p.doubled+1, mostDoubled)
	}
}
