package control

// Problem is a mistake in a part of the configuration.
type Problem struct {
	Key  string // below that part: "maxPercent"
	Text string // "20: must be 100 to 1000 (percent)"
}
