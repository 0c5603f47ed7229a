package annotation

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-dev/sluice/pkg/text/quantity"
	"github.com/sluice-dev/sluice/pkg/workload"
)

const egressForms = "must be bits per second, 64k to 10T (like 200M or 1G), or a percentage of the node's link, 1% to 100%"

// parseEgress parses a ceiling like 200M or 20%.
func parseEgress(value string) (workload.Egress, error) {
	if percent, err := parsePercent(value, 100); err == nil {
		return workload.Egress{Percent: percent}, nil
	}
	amount, err := quantity.Parse(value)
	bits := amount.Value()
	switch {
	case err == nil && strings.HasSuffix(value, "m"):
		return workload.Egress{}, errors.New(egressForms + "; m stands for thousandths of a bit, and M for millions")
	case err != nil, amount%1000 != 0, bits < workload.LeastEgress, bits > workload.MostEgress:
		return workload.Egress{}, errors.New(egressForms)
	}
	return workload.Egress{Bits: bits}, nil
}

// egress reads the ceiling on what the pod sends. The pod can lower a ceiling that the configuration
// gives, and not raise it.
func (r *reader) egress() {
	won := r.resolve(egressKey)
	if won == nil || won.origin == config {
		return
	}
	for i := range r.candidates {
		a := &r.candidates[i]
		if a.key != egressKey || a.origin != config {
			continue
		}
		own := r.req.Egress
		r.req.Egress.Tighten(a.parsed.Egress)
		if r.req.Egress != own {
			r.record(a)
		}
		if own.Bits > r.req.Egress.Bits || own.Percent > r.req.Egress.Percent {
			r.warn(won.source, fmt.Sprintf("asks for egress %s, but %s allows %s: the latter counts", quote(won.value), a.source, a.value))
		}
		return
	}
}

// koordinatorNetwork reads networkQOS, whose amounts are bits per second and whose numbers are percentages
// of the node's bandwidth; see AnnotationNetworkQOS in Koordinator's apis/extension. As there, 0 is no
// limit. The value is for pods of every class, and is checked for BE only.
func (r *reader) koordinatorNetwork(text, source string) {
	var q struct {
		In  json.RawMessage `json:"IngressLimit"`
		Out json.RawMessage `json:"EgressLimit"`
	}
	if text == "" || !r.json(source, text, &q) {
		return
	}
	if bandwidth(q.In) != "" {
		r.warn(source, "has an IngressLimit, which Sluice does not apply: it limits only what BE pods send")
	}
	if limit := bandwidth(q.Out); limit != "" {
		r.propose(candidate{key: egressKey, value: limit, podText: "EgressLimit: " + string(q.Out), source: source, origin: koordinator, soft: true})
	}
}

// bandwidth returns a limit of Koordinator in the form that parseEgress reads; "" for none.
func bandwidth(limit json.RawMessage) string {
	if len(limit) == 0 {
		return ""
	}
	var text string
	if json.Unmarshal(limit, &text) != nil {
		text = string(limit) + "%"
	}
	text = strings.TrimSpace(text)
	if amount, err := quantity.Parse(strings.TrimSuffix(text, "%")); err == nil && amount == 0 {
		return ""
	}
	return text
}
