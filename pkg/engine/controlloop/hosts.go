package controlloop

import (
	"maps"
	"time"

	"github.com/sluice-dev/sluice/pkg/decide/control"
	"github.com/sluice-dev/sluice/pkg/engine/hostoffers"
	"github.com/sluice-dev/sluice/pkg/status"
	"github.com/sluice-dev/sluice/pkg/workload"
)

// rewriteAfter is the time after which a host application's file is written again although it says the
// same, so that it stays valid.
const rewriteAfter = hostoffers.Valid / 5

// hostFiles are the files of host applications.
type hostFiles struct {
	written  map[string]hostFile // by path
	busy     bool                // they are being written
	problems map[string]string   // why the last change of a file failed, which was logged
}

type hostFile struct {
	content hostoffers.Content // with no time
	at      time.Time          // of its writing
}

// followHosts looks for host applications whose cgroups have appeared or gone.
func (l *Loop) followHosts() {
	if len(l.Config.Control.HostApplications) == 0 && len(l.View.HostApplications) == 0 {
		return
	}
	if l.Settings.FindHosts() {
		l.Settings.DeclareHosts()
		l.Refresh()
	}
}

// tellHosts writes what host applications may use into their files. A loop that does not act has
// none.
func (l *Loop) tellHosts() {
	files := &l.hostFiles
	if files.busy {
		return
	}
	now := l.Now()
	next := map[string]hostFile{}
	if l.Authority().Acts("") {
		for i := range l.Config.Control.HostApplications {
			if a := &l.Config.Control.HostApplications[i]; a.File != "" {
				next[a.File] = hostFile{contentOf(l.hostOffer(a)), now}
			}
		}
	}
	var remove []string
	for file, has := range files.written {
		if want, still := next[file]; !still {
			remove = append(remove, file)
		} else if want.content == has.content && now.Sub(has.at) < rewriteAfter && !now.Before(has.at) {
			next[file] = has
		}
	}
	write := map[string]hostoffers.Content{}
	for file, f := range next {
		if f.at.Equal(now) {
			f.content.ValidUntil = now.Add(hostoffers.Valid).UTC().Truncate(time.Second)
			write[file] = f.content
		}
	}
	if len(write) == 0 && len(remove) == 0 {
		return
	}
	files.busy = true
	done := map[string]error{}
	l.Aside("offers to host applications written", func() {
		for file, content := range write {
			done[file] = hostoffers.Write(file, &content)
		}
		for _, file := range remove {
			done[file] = hostoffers.Remove(file)
		}
	}, func() {
		files.busy = false
		for file, err := range done {
			l.noteHostFile(file, err, next)
		}
	})
}

// noteHostFile notes that a file was written, or removed if it is not in next, or why it could not be.
func (l *Loop) noteHostFile(file string, err error, next map[string]hostFile) {
	files := &l.hostFiles
	if files.written == nil {
		files.written, files.problems = map[string]hostFile{}, map[string]string{}
	}
	f, wanted := next[file]
	switch {
	case err != nil && files.problems[file] != err.Error():
		files.problems[file] = err.Error()
		l.Log.WithError(err).WithField("file", file).Warn("The file with the offer to a host application can't be changed; Sluice tries again")
	case err != nil:
	case wanted:
		files.written[file] = f
		delete(files.problems, file)
	default:
		delete(files.written, file)
		delete(files.problems, file)
	}
}

// hostOffer is what a host application may use now, and why it is nothing. Windows and bounds leave batch
// work less CPU than the node offers.
func (l *Loop) hostOffer(a *control.HostApplication) (offer control.Amount, why string) {
	if problem := l.Settings.HostProblem(a); problem != "" {
		return offer, problem
	}
	all := l.offer.All
	all.CPU = l.View.LeftToBatch(all.CPU)
	return a.PartOf(all), l.offer.Why
}

// contentOf is what a host application's file says.
func contentOf(offer control.Amount, why string) (c hostoffers.Content) {
	c.VCores, c.MemoryMB = hostoffers.InYARNUnits(offer)
	c.Why = why
	return c
}

// hostStatus reports the host applications.
func (l *Loop) hostStatus() (all []status.HostApplication) {
	limits := maps.Collect(l.Memory.Limits())
	for i := range l.Config.Control.HostApplications {
		a := &l.Config.Control.HostApplications[i]
		offer, why := l.hostOffer(a)
		content := contentOf(offer, why)
		s := status.HostApplication{
			Name: a.Name, Cgroup: a.Cgroup, Problem: l.Settings.HostProblem(a), File: a.File, FileProblem: l.hostFiles.problems[a.File],
			Offer: offer, VCores: content.VCores, MemoryMB: content.MemoryMB, Why: why,
			Quota: workload.MilliCPU(l.Settings.InForce().BatchCgroups[a.Cgroup].Quota.Milli()), MemoryLimitBytes: max(0, int64(limits[a.Cgroup])),
		}
		for j := range l.View.HostApplications {
			if u := &l.View.HostApplications[j]; u.Name == a.Name {
				held := l.View.Held[a.Cgroup]
				s.Used = control.Amount{CPU: u.CPU.Usage, MemoryBytes: held.NonCache()}
			}
		}
		all = append(all, s)
	}
	return all
}
