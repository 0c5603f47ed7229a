package manifest

import (
	"strconv"

	"github.com/sluice-dev/sluice/pkg/workload/grants"
)

// grant enters what the kubelet will grant to the pod's containers when it admits the pod:
// their requests, including those of batch resources.
func (s *podSpec) grant(pod *Pod) error {
	requests := map[string]grants.Requests{}
	for _, list := range [][]container{s.InitContainers, s.Containers} {
		for i := range list {
			requests[list[i].Name] = list[i].Resources.requests()
		}
	}
	var level grants.Requests
	if s.Resources != nil {
		level = s.Resources.requests()
	}
	record, err := grants.Admitted(pod.Sandbox.UID, requests, level)
	if err != nil {
		return err
	}
	for i := range pod.Containers {
		pod.Containers[i].Granted = record.Of(pod.Sandbox.UID, pod.Containers[i].Name)
	}
	return nil
}

// requests returns all requests as the API server stores them. A resource that has only a limit
// is requested in that amount.
func (r resources) requests() grants.Requests {
	all := grants.Requests{}
	for _, list := range []amounts{r.Limits, r.Requests} {
		for name, amount := range list.Others {
			all[name] = amount.Value
		}
		if list.CPU != nil {
			all["cpu"] = strconv.FormatInt(int64(*list.CPU), 10) + "m"
		}
		if list.Memory != nil {
			all["memory"] = strconv.FormatInt(list.Memory.value(), 10)
		}
	}
	return all
}
