package annotation

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Invalid is a value that can't be applied.
type Invalid struct {
	Container string // "namespace/pod/container"
	Source    string // "annotation cpus.sluice.dev/pod"
	Value     string
	Reason    string // what is wrong, what is allowed, and what to do
}

func (e *Invalid) Error() string {
	return "container " + e.Container + ": " + e.Source + " = " + quote(e.Value) + ": " + e.Reason
}

// Warning is a value that was ignored, or that has less effect than its author may expect.
type Warning struct {
	Source string // "annotation cpus.sluice.dev/pod"
	Text   string // complete sentence that names the container
	Cut    bool   // the source claims more than the kubelet has granted
}

func (w Warning) String() string { return w.Text }

// refuse rejects a value. The container fails, unless the value is a preference or the node
// ignores invalid values; then the key is ignored. The result reports whether the container
// fails.
func (r *reader) refuse(a *candidate, reason string) bool {
	invalid := &Invalid{Container: workload.Ref(r.pod, r.container), Source: a.source, Value: cmp.Or(a.podText, a.value), Reason: clip(reason)}
	if a.soft || a.origin == config || r.rules.OnInvalid == Ignore {
		r.warnings = append(r.warnings, Warning{Source: a.source, Text: invalid.Error() + " (ignored)"})
		return false
	}
	r.problems = append(r.problems, invalid)
	return true
}

// warn records that a value from source has less effect than its author may expect.
func (r *reader) warn(source, text string) {
	text = "container " + workload.Ref(r.pod, r.container) + ": " + source + " " + text
	r.warnings = append(r.warnings, Warning{Source: source, Text: text})
}

func tooLong(length int) string {
	return fmt.Sprintf("is %d bytes long; at most %d are read", length, maxLength)
}

// clip shortens a reason and makes it printable, since parsers repeat their input.
func clip(reason string) string {
	const most = 800
	if len(reason) > most {
		reason = strings.ToValidUTF8(reason[:most], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, reason)
}

// quote quotes a value for a message, and shortens a long one.
func quote(value string) string {
	const most = 80
	if len(value) <= most {
		return strconv.Quote(value)
	}
	return strconv.Quote(strings.ToValidUTF8(value[:most], "")) + "…"
}
