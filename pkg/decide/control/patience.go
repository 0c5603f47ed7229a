package control

// patience stretches the calm after which something is given back: twice as long each
// time that giving back brought the trouble again, so that a load which stays is not
// tried again and again.
type patience struct {
	doubled int
	tried   bool // something was given back since the last trouble
}

// mostDoubled bounds it: 16 times as long.
const mostDoubled = 4

func (p *patience) factor() int { return 1 << p.doubled }

// trouble is told that there is no calm.
func (p *patience) trouble() {
	if p.tried {
		p.tried, p.doubled = false, min(p.doubled+1, mostDoubled)
	}
}
