package cpuset

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// Parse parses Linux' list format, as in /sys/devices/system/cpu/online and cpuset.cpus:
// comma-separated numbers and ranges with an optional "used/group" step ("0-3,8,16-31:2/4"),
// with optional white space around it. The empty string is the empty set. See bitmap_parselist
// in the kernel's lib/bitmap-str.c.
func Parse(list string) (Set, error) {
	var s Set
	list = strings.TrimSpace(list)
	if list == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(list, ",") {
		if err := s.addRange(strings.TrimSpace(part)); err != nil {
			return Set{}, fmt.Errorf("CPU list %.100q: %w", list, err)
		}
	}
	return s, nil
}

// MustParse is Parse for constants; it panics on an error.
func MustParse(list string) Set {
	s, err := Parse(list)
	if err != nil {
		panic(err)
	}
	return s
}

func (s *Set) addRange(part string) error {
	span, step, stepped := strings.Cut(part, ":")
	from, to, ranged := strings.Cut(span, "-")
	if !ranged {
		to = from
	}
	first, err := parseNumber(from)
	if err != nil {
		return err
	}
	last, err := parseNumber(to)
	if err != nil {
		return err
	}
	if last < first {
		return fmt.Errorf("range %q runs backwards", part)
	}
	used, group := 1, 1
	if stepped {
		u, g, ok := strings.Cut(step, "/")
		if !ok || !ranged {
			return fmt.Errorf("%q: a step is written first-last:used/group", part)
		}
		if used, err = parseNumber(u); err != nil {
			return err
		}
		if group, err = parseNumber(g); err != nil {
			return err
		}
		if used == 0 || group == 0 || used > group {
			return fmt.Errorf("%q: of a step used/group, used is from 1 to group", part)
		}
	}
	for ; first <= last; first += group {
		s.addSpan(first, min(last, first+used-1))
	}
	return nil
}

func parseNumber(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a number", text)
	}
	if n >= Max {
		return 0, fmt.Errorf("%d is beyond the highest number, %d", n, Max-1)
	}
	return int(n), nil
}

// String returns the set in Linux' list format: "0-3,8"; the empty set is "".
func (s Set) String() string {
	if s.IsEmpty() {
		return ""
	}
	out := make([]byte, 0, 64)
	for first := s.next(0, 0); first < Max; {
		end := s.next(first, ^uint64(0))
		out = strconv.AppendInt(out, int64(first), 10)
		if end > first+1 {
			out = append(out, '-')
			out = strconv.AppendInt(out, int64(end-1), 10)
		}
		out = append(out, ',')
		first = s.next(end, 0)
	}
	return string(out[:len(out)-1])
}

// next returns the lowest member that is from or higher. With all bits of flip set it returns
// the lowest number that is not a member. It returns Max if there is none.
func (s *Set) next(from int, flip uint64) int {
	if from >= Max {
		return Max
	}
	w := (s.w[from/64] ^ flip) >> (from % 64) << (from % 64)
	for i := from / 64; ; w = s.w[i] ^ flip {
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
		if i++; i == words {
			return Max
		}
	}
}

// ParseMask parses Linux' mask format, as in /proc/irq/default_smp_affinity: comma-separated
// groups of up to eight hexadecimal digits, the highest first.
func ParseMask(mask string) (Set, error) {
	var s Set
	groups := strings.Split(strings.TrimSpace(mask), ",")
	for i, group := range groups {
		w, err := strconv.ParseUint(group, 16, 32)
		if err != nil || len(group) > 8 {
			return Set{}, fmt.Errorf("CPU mask %.100q: %.40q is not a group of up to 8 hexadecimal digits", mask, group)
		}
		shift := (len(groups) - 1 - i) * 32
		if w != 0 && shift >= Max {
			return Set{}, fmt.Errorf("CPU mask %.100q: a bit beyond the highest number, %d", mask, Max-1)
		}
		if w != 0 {
			s.w[shift/64] |= w << (shift % 64)
		}
	}
	return s, nil
}

// Mask returns the set in Linux' mask format in whole groups ("000000ff", "00000001,00000000");
// the empty set is "00000000".
func (s Set) Mask() string {
	groups := max(1, s.Last()/32+1)
	out := make([]byte, 0, groups*9)
	for g := groups - 1; g >= 0; g-- {
		group := s.w[g/2] >> (g % 2 * 32)
		for shift := 28; shift >= 0; shift -= 4 {
			out = append(out, "0123456789abcdef"[group>>shift&15])
		}
		out = append(out, ',')
	}
	return string(out[:len(out)-1])
}

// GoString keeps the output of %#v, which test tools print, readable.
func (s Set) GoString() string { return "cpuset.MustParse(" + strconv.Quote(s.String()) + ")" }

// MarshalText returns the list format, for JSON and YAML.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses the list format.
func (s *Set) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}
