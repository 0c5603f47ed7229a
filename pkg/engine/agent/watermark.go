package agent

import (
	"github.com/sluice-dev/sluice/pkg/config"
	"github.com/sluice-dev/sluice/pkg/engine/journal"
	"github.com/sluice-dev/sluice/pkg/kernel/watermark"
)

// Watermarks are the node's free-memory watermarks; see pkg/kernel/watermark.
type Watermarks interface {
	Read() (watermark.Values, error)
	Write(to watermark.Values) (watermark.Values, error)
}

// watermarksState is the name of their originals in the book.
const watermarksState = "watermarks"

// raiseWatermarks brings the node's watermarks to the size of its memory where the
// configuration says so, else those of an earlier run back.
func (a *Agent) raiseWatermarks() {
	if a.Watermarks == nil || !a.authority().Writes {
		return
	}
	if a.Config.Memory.GlobalWatermark != config.WatermarkAuto {
		a.leaveWatermarks()
		return
	}
	now, err := a.raise()
	if err != nil {
		a.Log.WithError(err).Warn("The node's memory watermarks stay as they are")
		return
	}
	a.Log.WithField("scaleFactor", now.ScaleFactor).WithField("minFreeKB", now.MinFreeKB).Info("The node's memory watermarks are raised")
}

func (a *Agent) raise() (now watermark.Values, err error) {
	found, err := a.Watermarks.Read()
	if err != nil {
		return now, err
	}
	var kept watermark.Kept
	if _, err := a.book.State(watermarksState, &kept); err != nil {
		a.Log.WithError(err).Warn("The original memory watermarks are lost: those found are taken for them")
	}
	m := a.ledger.Machine()
	kept = watermark.Plan(found, kept, m.Memory(m.MemoryNodes()), m.MemoryNodes().Size())
	if err := a.book.KeepState(watermarksState, kept); err != nil {
		return now, err
	}
	if err := a.book.Flush(); err != nil {
		return now, err
	}
	return a.Watermarks.Write(kept.Now)
}

// leaveWatermarks gives the originals back, beside koordlet too that came later.
func (a *Agent) leaveWatermarks() {
	if a.Watermarks == nil || a.Config.Mode != config.On {
		return
	}
	if err := restoreWatermarks(a.Watermarks, a.book); err != nil {
		a.Log.WithError(err).Warn("The original memory watermarks could not be given back")
	}
}

func restoreWatermarks(host Watermarks, book *journal.Book) error {
	var kept watermark.Kept
	if has, err := book.State(watermarksState, &kept); err != nil || !has {
		return err
	}
	found, err := host.Read()
	if err == nil {
		_, err = host.Write(watermark.Restore(found, kept))
	}
	if err != nil {
		return err
	}
	return book.KeepState(watermarksState, nil)
}
