package render

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/batchswitch"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/text/humanize"
	"github.com/sluice-dev/sluice/pkg/text/terminal"
)

// Batch writes the result of setting the batch switch, 80 columns wide.
func Batch(w io.Writer, r *batchswitch.Report) error {
	var out strings.Builder
	rows := [][]string{{"switch", switchText(&r.Switch)}}
	if r.Batch != nil {
		if fleet := r.Batch.FleetSwitch; fleet != nil && (fleet.State != control.SwitchAuto || fleet.Problem != "") {
			rows = append(rows, []string{"fleet", fleetText(fleet)})
		}
		rows = append(rows, []string{"batch", batchState(r.Batch)}, []string{"CPU", budgetText(r.Batch)})
	}
	rows = append(rows, []string{"loop", loopAnswer(r)})
	if f := r.Floor; f != nil && f.Changes > 0 {
		text := humanize.Count(f.Changes, "setting") + " written in the loop's place: services get what they request, batch work its floor; new batch work can still start"
		if r.Loop == batchswitch.LoopStuck {
			text += ", and the plugin may set them back"
		}
		rows = append(rows, []string{"done", text})
	}
	for _, lack := range r.Lacks {
		rows = append(rows, []string{"NOT DONE", lack})
	}
	terminal.Table(&out, "", terminal.Columns, rows)
	return flush(w, &out)
}

// loopAnswer says what the running loop makes of the switch.
func loopAnswer(r *batchswitch.Report) string {
	if r.Loop == batchswitch.LoopFollows && r.Preview != "" {
		return "only previews the switch, which changes nothing on this node: " + r.Preview
	}
	return map[batchswitch.LoopAnswer]string{
		batchswitch.LoopFollows: "follows the switch",
		batchswitch.LoopOff:     "none: control.mode is off; the switch counts once there is one",
		batchswitch.LoopStuck:   "has not taken the switch over, though the plugin answers: 'sluice status' and its log say why",
		batchswitch.LoopSilent:  "doesn't answer: the plugin is away or hangs; the switch counts when it is back",
	}[r.Loop]
}

func switchText(s *status.Switch) string {
	text := string(cmp.Or(s.State, "auto"))
	switch s.State {
	case control.SwitchAuto:
		text += ": the configured windows count"
	case control.SwitchOff:
		if s.Evict {
			text += ", with eviction"
		}
	}
	if !s.EndsAt.IsZero() {
		text += ", until " + moment(s.EndsAt)
	}
	return text
}

// fleetText describes the fleet's switch.
func fleetText(s *status.Switch) string {
	text := "the fleet's switch is " + switchText(s)
	if s.Problem != "" {
		text += "; it stays so: " + s.Problem
	}
	return text
}

// batchState says what batch work may do, and until when.
func batchState(b *status.Batch) string {
	text := map[status.BatchState]string{
		status.BatchOpen:     "open",
		status.BatchNoNew:    "takes no new pods, what runs may finish",
		status.BatchSqueezed: fmt.Sprintf("squeezed to %d%% of what it would have", b.KeptPercent),
		status.BatchClosed:   "closed: its floor alone, and no new pods",
		status.BatchEvicting: "closed, and what runs is evicted",
	}[b.State]
	text = cmp.Or(text, string(b.State))
	if b.Why != "" {
		text += "; " + b.Why
	}
	if !b.NextChangeAt.IsZero() {
		text += "; next change " + moment(b.NextChangeAt)
	}
	return text
}

// budgetText describes the CPU budget of batch work.
func budgetText(b *status.Batch) string {
	used := fmt.Sprintf("%s used, %s always", humanize.CPUs(b.Used), humanize.CPUs(b.Floor))
	if b.BoundsPercent > 0 {
		used += fmt.Sprintf("; bounds of services leave it %d%%: %s", b.BoundsPercent, b.BoundsWhy)
	}
	switch {
	case !b.Known:
		return "not bounded yet: the loop has measured nothing; " + used
	case b.Unlimited:
		return "not bounded: " + used
	}
	return fmt.Sprintf("%s CPUs by %s; %s", humanize.CPUs(b.Budget), b.Mechanism, used)
}

// moment formats a time for people, without the seconds.
func moment(t time.Time) string { return t.Local().Format("2006-01-02 15:04") }
