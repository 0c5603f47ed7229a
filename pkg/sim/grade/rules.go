package grade

import (
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/workload/annotation"
)

// Rules returns rules for the classify part of a configuration, one for each namespace whose
// workloads all belong to the same place and are not there yet. Recordings have no labels, so that
// no rule can tell workloads of a namespace apart: mixed are the namespaces that would need it.
func Rules(all []Workload, c *config.Config) (rules []annotation.Classification, mixed []string) {
	byNamespace := map[string][]Workload{}
	var names []string
	for _, w := range all {
		namespace, _, _ := strings.Cut(w.Name, "/")
		if byNamespace[namespace] == nil {
			names = append(names, namespace)
		}
		byNamespace[namespace] = append(byNamespace[namespace], w)
	}
	slices.Sort(names)
	mixed = []string{}
	for _, namespace := range names {
		there := byNamespace[namespace]
		moves := slices.ContainsFunc(there, func(w Workload) bool { return w.moves(c) })
		alike := !slices.ContainsFunc(there, func(w Workload) bool { return w.Grade != there[0].Grade })
		switch {
		case moves && alike:
			rules = append(rules, annotation.Classification{Match: annotation.Match{Namespaces: []string{namespace}}, Set: there[0].set(c)})
		case moves:
			mixed = append(mixed, namespace)
		}
	}
	return rules, mixed
}

// pool returns the name of the grade's pool; "" if the configuration has none.
func (g Grade) pool(c *config.Config) string {
	policy := c.Policy()
	switch {
	case g == Online:
		return policy.DefaultPool()
	case g == Batch:
		return policy.BatchPool()
	case g == Critical && len(c.Pools.List) > 2:
		return c.Pools.List[0].Name
	}
	return ""
}

// moves reports whether a workload is elsewhere than where it belongs.
func (w *Workload) moves(c *config.Config) bool {
	to := w.Grade.pool(c)
	return w.Grade != Kept && to != "" && w.Pool != to
}

// set returns the keys that put a workload where it belongs.
func (w *Workload) set(c *config.Config) annotation.Set {
	if w.Grade == Batch {
		return annotation.Set{"class": {Text: "BE"}}
	}
	return annotation.Set{"pool": {Text: w.Grade.pool(c)}}
}

// Classify returns the configuration's rules with others after them, as a part of sluice.yaml; ""
// without other rules.
func Classify(c *config.Config, rules []annotation.Classification) (string, error) {
	if len(rules) == 0 {
		return "", nil
	}
	with := *c
	with.Classify = slices.Concat(c.Classify, rules)
	text, err := with.Part("classify")
	return string(text), err
}
