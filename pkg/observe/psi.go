package observe

import (
	"bytes"
	"time"
)

// ParsePressure parses the lines of a pressure file (Documentation/accounting/psi.rst) without
// allocation. The result ok says whether there was one line of each kind:
//
//	some avg10=0.12 avg60=0.00 avg300=0.00 total=12345
//	full avg10=0.00 avg60=0.00 avg300=0.00 total=123
//
// A file has no "full" for the CPU before Linux 5.13.
func ParsePressure(text []byte) (some, full Stall, ok bool) {
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		text = rest
		switch {
		case bytes.HasPrefix(line, []byte("some ")):
			some, ok = parseStall(line[len("some "):])
		case bytes.HasPrefix(line, []byte("full ")):
			full, _ = parseStall(line[len("full "):])
		}
	}
	return some, full, ok
}

func parseStall(line []byte) (Stall, bool) {
	_, avg, _ := bytes.Cut(line, []byte("avg10="))
	_, total, ok := bytes.Cut(line, []byte("total="))
	if !ok {
		return Stall{}, false
	}
	microseconds, digits := parseNumber(total)
	whole, n := parseNumber(avg)
	share := float64(whole) / 100
	if n < len(avg) && avg[n] == '.' {
		hundredths, _ := parseNumber(avg[n+1 : min(len(avg), n+3)])
		share += float64(hundredths) / 10000
	}
	return Stall{
		Total: time.Duration(min(microseconds, int64(1<<63-1)/1000)) * time.Microsecond,
		Avg10: min(1, share),
	}, digits > 0
}

// parseNumber parses the number at the start of a text and returns it with its number of
// digits. If the number is too large, it returns the largest int64.
func parseNumber(text []byte) (n int64, digits int) {
	const most = 1<<63 - 1
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		digits++
		d := int64(c - '0')
		if n > (most-d)/10 {
			n = most
			continue
		}
		n = n*10 + d
	}
	return n, digits
}
