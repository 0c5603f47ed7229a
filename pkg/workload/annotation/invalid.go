package annotation

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// Invalid is a value that can't be honoured.
type Invalid struct {
	Container string // "namespace/pod/container"
	Source    string // "annotation cpus.sluice.dev/pod"
	Value     string
	Reason    string // what is wrong, what is allowed, and what to do
}

func (e *Invalid) Error() string {
	return "container " + e.Container + ": " + e.Source + " = " + quote(e.Value) + ": " + e.Reason
}

// Warning is a value that was ignored, or that counts less than its author may
// think.
type Warning struct {
	Source string // "annotation cpus.sluice.dev/pod"
	Text   string // a whole sentence that names the container
	Cut    bool   // the source claims more than the kubelet has granted
}

func (w Warning) String() string { return w.Text }

// refuse turns a value down: the container fails, or, where the value is a
// preference or the node ignores what is invalid, the key is ignored. It reports
// whether the container fails.
func (r *reader) refuse(a *ask, reason string) bool {
	invalid := &Invalid{Container: workload.Ref(r.pod, r.container), Source: a.source, Value: cmp.Or(a.said, a.value), Reason: clip(reason)}
	if a.soft || a.origin == config || r.rules.OnInvalid == Ignore {
		r.warnings = append(r.warnings, Warning{Source: a.source, Text: invalid.Error() + " (ignored)"})
		return false
	}
	r.problems = append(r.problems, invalid)
	return true
}

// warn says that what a source gave counts less than its author may think.
func (r *reader) warn(source, text string) {
	text = "container " + workload.Ref(r.pod, r.container) + ": " + source + " " + text
	r.warnings = append(r.warnings, Warning{Source: source, Text: text})
}

func tooLong(length int) string {
	return fmt.Sprintf("is %d bytes long; at most %d are read", length, maxLength)
}

// clip bounds a reason and makes it printable: parsers repeat what they were given.
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

// quote quotes a value for a message, and cuts a long one.
func quote(value string) string {
	const most = 80
	if len(value) <= most {
		return strconv.Quote(value)
	}
	return strconv.Quote(strings.ToValidUTF8(value[:most], "")) + "…"
}
