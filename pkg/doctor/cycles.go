package doctor

import (
	"errors"
	"io/fs"
)

// Cycles is what counting cycles per instruction (control.culprit.cpi) needs.
type Cycles struct {
	Err error // why this process can count none
}

// cycles checks whether cycles per instruction can be counted, if the configuration asks for it.
func (n *node) cycles() []Finding {
	const name, grant = "cycles per instruction", "CAP_PERFMON, and the system call perf_event_open (docs/install.md)"
	const without = "what resctrl counts still shows lost cache; where there is none, control.culprit.cpi: false"
	if n.Cycles == nil {
		return nil
	}
	if p := n.service(); len(p.lacks("CAP_PERFMON")) > 0 && len(p.lacks("CAP_SYS_ADMIN")) > 0 {
		return []Finding{warn(name, "the plugin runs without CAP_PERFMON: it can count none", "grant it "+grant)}
	}
	switch err := n.Cycles.Err; {
	case err == nil:
		return []Finding{ok(name, "by the processor's counters, 10 s of each minute, of services")}
	case errors.Is(err, fs.ErrPermission):
		return []Finding{warn(name, oneLine(err), "run sluice doctor as root; the plugin needs "+grant)}
	default:
		return []Finding{warn(name, oneLine(err), without)}
	}
}
