package schemata

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Schemata holds what a group may use: for each resource, by cache id, a mask of ways or a
// bandwidth.
type Schemata map[Resource]map[int]uint64

// base returns the number base in which the kernel writes a resource's values; ok is false for an
// unknown resource.
func (r Resource) base() (int, bool) {
	switch {
	case slices.Contains(Caches(), r):
		return 16, true
	case slices.Contains(Bandwidths(), r):
		return 10, true
	}
	return 0, false
}

// Parse parses a schemata file. It skips unknown resources.
func Parse(text string) (Schemata, error) {
	s := Schemata{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, list, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("schemata line %q has no colon", line)
		}
		r := Resource(strings.TrimSpace(name))
		base, known := r.base()
		if !known {
			continue
		}
		if s[r] != nil {
			return nil, fmt.Errorf("schemata line %q: the resource comes twice", line)
		}
		s[r] = map[int]uint64{}
		for item := range strings.SplitSeq(list, ";") {
			id, value, _ := strings.Cut(item, "=")
			domain, err1 := strconv.ParseUint(strings.TrimSpace(id), 10, 31)
			v, err2 := strconv.ParseUint(strings.TrimSpace(value), base, 32)
			if _, twice := s[r][int(domain)]; err1 != nil || err2 != nil || twice {
				return nil, fmt.Errorf("schemata line %q: %q is no new cache id with its value", line, item)
			}
			s[r][int(domain)] = v
		}
	}
	return s, nil
}

// String returns the text to write: a line for each resource, sorted by name.
func (s Schemata) String() string {
	var text strings.Builder
	for _, r := range slices.Sorted(maps.Keys(s)) {
		base, _ := r.base()
		sep := string(r) + ":"
		for _, id := range s.ids(r) {
			text.WriteString(sep + strconv.Itoa(id) + "=" + strconv.FormatUint(s[r][id], base))
			sep = ";"
		}
		if len(s[r]) > 0 {
			text.WriteByte('\n')
		}
	}
	return text.String()
}

func (s Schemata) ids(r Resource) []int { return slices.Sorted(maps.Keys(s[r])) }

// Beyond returns the values of s that differ from now, for resources that both have. It skips
// caches that now lacks, because they are offline.
func (s Schemata) Beyond(now Schemata) Schemata {
	diff := Schemata{}
	for r, values := range s {
		for id, v := range values {
			if present, ok := now[r][id]; ok && present != v {
				if diff[r] == nil {
					diff[r] = map[int]uint64{}
				}
				diff[r][id] = v
			}
		}
	}
	return diff
}
