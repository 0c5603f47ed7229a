package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PartLabel is the label, with the value PartValue, of ConfigMaps with a part of sluice.yaml.
const (
	PartLabel = "sluice.dev/policy"
	PartValue = "part"
)

// These are the keys of such a ConfigMap.
const (
	textKey    = "sluice.yaml"    // the part; required
	orderKey   = "order"          // 0 to 1000; later parts count before earlier ones
	rolloutKey = "rolloutPercent" // 0 to 100: the share of the selected nodes that get the part
)

// These bound what a node takes.
const (
	MaxParts    = 32
	MaxText     = 16 << 10 // of one part, in bytes
	MaxMessage  = 1 << 20  // of all parts, as JSON
	maxOrder    = 1000
	maxName     = 253 // of a Kubernetes object (RFC 1123 subdomain)
	allOf       = 100 // percent
	fineness    = 100 // steps of a percent
	problemMost = 1 << 10
)

// Part is a part of sluice.yaml that a node is to have.
type Part struct {
	Name    string `json:"name"`              // of its ConfigMap
	Text    string `json:"text,omitempty"`    // YAML
	Problem string `json:"problem,omitempty"` // why the node gets no text; "" if it does
}

// Source is a ConfigMap with a part.
type Source struct {
	Name string
	Data map[string]string
}

// Parts returns the parts that a node is to have, the most important last. A part whose order,
// selector or rollout can't be read has a problem in place of its text.
func Parts(node string, sources []Source, selects Selector) []Part {
	type ordered struct {
		Part
		order int
	}
	var all []ordered
	for _, s := range sources {
		text, order, selected, err := s.read(node, selects)
		if err != nil {
			problem := strings.ToValidUTF8(err.Error()[:min(len(err.Error()), problemMost)], "")
			all = append(all, ordered{Part{Name: s.Name, Problem: problem}, maxOrder + 1})
		} else if selected {
			all = append(all, ordered{Part{Name: s.Name, Text: text}, order})
		}
	}
	slices.SortFunc(all, func(a, b ordered) int { return cmp.Or(a.order-b.order, strings.Compare(a.Name, b.Name)) })
	parts := make([]Part, 0, MaxParts+1)
	if more := len(all) - MaxParts; more > 0 { // the least important ones go, and one problem tells it
		parts = append(parts, Part{Name: all[more-1].Name, Problem: fmt.Sprintf("a node takes at most %d parts: join some, or remove this one", MaxParts)})
		all = all[more:]
	}
	for i := range all {
		parts = append(parts, all[i].Part)
	}
	return parts
}

func (s *Source) read(node string, selects Selector) (text string, order int, selected bool, err error) {
	keys := []string{textKey, orderKey, rolloutKey, selectorKey}
	for key := range s.Data {
		if !slices.Contains(keys, key) {
			return "", 0, false, fmt.Errorf("%s is not a key of a part; the keys are %s", quote(key), strings.Join(keys, ", "))
		}
	}
	text = s.Data[textKey]
	if strings.TrimSpace(text) == "" {
		return "", 0, false, fmt.Errorf("the key %s is missing; set it to keys of sluice.yaml", textKey)
	}
	if len(text) > MaxText {
		return "", 0, false, fmt.Errorf("the key %s has %d bytes: a part has at most %d", textKey, len(text), MaxText)
	}
	if order, err = number(s.Data, orderKey, 0, maxOrder); err != nil {
		return "", 0, false, err
	}
	percent, err := number(s.Data, rolloutKey, allOf, allOf)
	if err != nil {
		return "", 0, false, err
	}
	if selector := strings.TrimSpace(s.Data[selectorKey]); selector != "" {
		selected, err := selects(selector)
		if err != nil {
			return "", 0, false, fmt.Errorf("the key %s has %s: it must be a label selector, as %q (%w)", selectorKey, quote(selector), "pool=batch,zone in (a,b)", err)
		}
		if !selected {
			return "", 0, false, nil
		}
	}
	return text, order, place(node, s.Name, text) < percent*fineness, nil
}

func number(data map[string]string, key string, otherwise, most int) (int, error) {
	text := strings.TrimSpace(data[key])
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("the key %s has %s: it must be a whole number from 0 to %d", key, quote(text), most)
	}
	return n, nil
}

// place is a node's place in the rollout of one revision of a part, from 0 to 9,999, as random as a
// hash. It depends on nothing else, so that a rollout with a larger percentage has all nodes of a
// smaller one.
func place(node, part, text string) int {
	sum := sha256.Sum256([]byte(node + "\x00" + part + "\x00" + text))
	return int(binary.BigEndian.Uint64(sum[:]) % (allOf * fineness))
}

// DecodeParts reads and checks the parts that sluice-kube hands over.
func DecodeParts(text []byte) ([]Part, error) {
	var parts []Part
	if len(text) > MaxMessage {
		return nil, fmt.Errorf("the parts must have at most %d bytes, and have %d", MaxMessage, len(text))
	}
	if err := json.Unmarshal(text, &parts); err != nil {
		return nil, fmt.Errorf("the parts are not the JSON that they must be: %w", err)
	}
	if len(parts) > MaxParts+1 {
		return nil, fmt.Errorf("there are %d parts: a node takes at most %d", len(parts), MaxParts)
	}
	seen := map[string]bool{}
	for i, p := range parts {
		switch {
		case p.Name == "" || len(p.Name) > maxName:
			return nil, fmt.Errorf("part %d: its name must have 1 to %d bytes", i, maxName)
		case seen[p.Name]:
			return nil, fmt.Errorf("part %s is there twice", quote(p.Name))
		case len(p.Text) > MaxText || len(p.Problem) > problemMost:
			return nil, fmt.Errorf("part %s: its text must have at most %d bytes, and its problem %d", quote(p.Name), MaxText, problemMost)
		case (p.Text == "") == (p.Problem == ""):
			return nil, fmt.Errorf("part %s must have either a text or a problem", quote(p.Name))
		}
		seen[p.Name] = true
	}
	return parts, nil
}
