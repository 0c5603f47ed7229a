// Package policy reads what an operator tells the nodes of a cluster in ConfigMaps. It is pure:
// it follows nothing and hands nothing over.
package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/suggest"
)

// SwitchName is the name of the ConfigMap with the fleet's switch.
const SwitchName = "sluice-switch"

// These are the keys of that ConfigMap.
const (
	batchKey    = "batch"        // auto, on or off
	evictKey    = "evict"        // with off: true or false
	untilKey    = "until"        // with on and off: a time as RFC 3339 has it
	selectorKey = "nodeSelector" // a label selector; all nodes without it
)

func switchKeys() []string { return []string{batchKey, evictKey, untilKey, selectorKey} }

// Selector reports whether a label selector selects the node.
type Selector func(selector string) (bool, error)

// Switch returns what the data of the ConfigMap with the fleet's switch say for a node. On a node
// that they do not select the switch is auto. The error names the key and what is allowed.
func Switch(data map[string]string, selects Selector) (status.Switch, error) {
	s, err := parseSwitch(data)
	if err != nil {
		return status.Switch{}, err
	}
	if selector := strings.TrimSpace(data[selectorKey]); selector != "" {
		selected, err := selects(selector)
		if err != nil {
			return status.Switch{}, wrong(selectorKey, selector, fmt.Sprintf("must be a label selector, as %q (%v)", "pool=batch,zone in (a,b)", err))
		}
		if !selected {
			return status.Switch{}, nil
		}
	}
	return s, nil
}

func parseSwitch(data map[string]string) (s status.Switch, err error) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if slices.Contains(switchKeys(), key) {
			continue
		}
		hint := "the keys are " + strings.Join(switchKeys(), ", ")
		if near := suggest.To(key, switchKeys()); near != "" {
			hint = "did you mean " + near + "?"
		}
		return s, fmt.Errorf("ConfigMap %s: %s is not a key of the fleet's switch; %s", SwitchName, quote(key), hint)
	}
	value := func(key string) string { return strings.TrimSpace(data[key]) }
	batch := value(batchKey)
	if batch == "" {
		return s, fmt.Errorf("ConfigMap %s: the key %s is missing; set it to auto, on or off", SwitchName, batchKey)
	}
	if err := s.State.UnmarshalText([]byte(batch)); err != nil {
		return status.Switch{}, wrong(batchKey, batch, "must be auto, on or off")
	}
	switch evict := value(evictKey); evict {
	case "", "false":
	case "true":
		if s.Evict = true; s.State != control.SwitchOff {
			return status.Switch{}, wrong(evictKey, evict, "goes with batch: off alone; remove it")
		}
	default:
		return status.Switch{}, wrong(evictKey, evict, "must be true or false")
	}
	if until := value(untilKey); until != "" {
		if s.EndsAt, err = moment(until); err != nil {
			return status.Switch{}, wrong(untilKey, until, err.Error())
		}
		if s.State == control.SwitchAuto {
			return status.Switch{}, wrong(untilKey, until, "goes with batch: on and batch: off alone; remove it")
		}
	}
	return s, nil
}

// moment reads a time that JSON can have.
func moment(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, errors.New("must be a time with its zone, as 2026-11-24T06:00:00Z")
	}
	t = t.UTC()
	const first, last = 2000, 9999
	if t.Year() < first || t.Year() > last {
		return t, fmt.Errorf("must be a time of the years %d to %d", first, last)
	}
	return t, nil
}

func wrong(key, value, what string) error {
	return fmt.Errorf("ConfigMap %s: the key %s has %s: it %s", SwitchName, key, quote(value), what)
}

// quote makes a text of anybody fit for a log and a condition.
func quote(text string) string {
	const most = 80
	if len(text) <= most {
		return strconv.Quote(text)
	}
	return strconv.Quote(strings.ToValidUTF8(text[:most], "")) + "…"
}
