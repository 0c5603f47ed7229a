package annotation

import (
	"fmt"
	"sort"
	"strings"
)

// maxUnknown is the largest number of unknown keys of one pod that a message names.
const maxUnknown = 5

// forOne is the rank of a key that applies to one container. It takes precedence over keys of
// the pod.
const forOne = 3

// own collects the pod's own annotations for the container, and finds out which dialects'
// annotations the pod has.
func (r *reader) own() {
	var found [ownKeys]struct {
		name, value string
		rank        uint8
	}
	var unknownNames []string
	chosen := false
	for name, value := range r.pod.Annotations {
		base, scope, scoped := strings.Cut(name, "/")
		if !within(base, domain) {
			r.inKoordinator = r.inKoordinator || within(base, koordDomain)
			r.inKatalyst = r.inKatalyst || base == katalystDomain
			continue
		}
		k, known := keyOf(strings.TrimSuffix(base, "."+domain))
		known = known && k < ownKeys
		container, forContainer := strings.CutPrefix(scope, "container.")
		rank := uint8(1)
		switch {
		case !known, scoped && scope != "pod" && !forContainer:
			unknownNames = append(unknownNames, name)
			continue
		case forContainer && container != r.container.Name:
			continue
		case forContainer:
			rank = forOne
		case scoped:
			rank = 2
		}
		if f := &found[k]; rank > f.rank {
			f.name, f.value, f.rank = name, value, rank
			chosen = true
		}
	}
	r.unknown(unknownNames)
	if !chosen {
		return
	}
	for k := range found {
		f := &found[k]
		switch {
		case f.rank == 0:
		case key(k) == grantKey:
			r.grant(f.value, "annotation "+f.name)
		default:
			r.propose(candidate{key: key(k), value: strings.TrimSpace(f.value), source: "annotation " + f.name, origin: ownAnnotation, single: f.rank == forOne})
		}
	}
}

// within reports whether a name is in the domain or a subdomain.
func within(name, domain string) bool {
	return strings.HasSuffix(name, domain) && (len(name) == len(domain) || name[len(name)-len(domain)-1] == '.')
}

// unknown refuses unknown keys of Sluice's domain. They are in alphabetical order, so that the
// same pod always gets the same message.
func (r *reader) unknown(names []string) {
	sort.Strings(names)
	var more string
	if len(names) > maxUnknown {
		more = fmt.Sprintf("; nor are %d more keys of this pod", len(names)-maxUnknown)
		names = names[:maxUnknown]
	}
	for _, name := range names {
		base, scope, _ := strings.Cut(name, "/")
		short := strings.TrimSuffix(strings.TrimSuffix(base, domain), ".")
		a := candidate{source: "annotation " + quote(name), value: r.pod.Annotations[name]}
		if k, known := keyOf(short); known && k < ownKeys {
			r.refuse(&a, "is not a key that Sluice knows: after the slash comes pod or container.NAME"+more)
			continue
		}
		if short == "" {
			short = scope
		}
		r.refuse(&a, unknown(short, Keys())+more)
	}
}
