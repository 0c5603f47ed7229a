package claim

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/sluice-dev/sluice/pkg/workload"
)

// ParametersVersion and ParametersKind are the type of the parameters of a device class.
const (
	ParametersVersion = Driver + "/v1"
	ParametersKind    = "CPUClaim"
)

// ParseParameters reads the opaque parameters of a device class or a claim: the class of the
// containers that use the CPUs.
func ParseParameters(data []byte) (workload.Class, error) {
	const form = `{"apiVersion": "` + ParametersVersion + `", "kind": "` + ParametersKind + `", "class": "LSE"}`
	var p struct {
		Version string `json:"apiVersion"`
		Kind    string `json:"kind"`
		Class   string `json:"class"`
	}
	if len(data) > MaxMessage {
		return 0, fmt.Errorf("the parameters have %d bytes: they are to be %s", len(data), form)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return 0, fmt.Errorf("the parameters are not %s: %w", form, err)
	}
	if p.Version != ParametersVersion || p.Kind != ParametersKind {
		return 0, fmt.Errorf("the parameters are of %q, kind %q: they are to be %s", clip(p.Version), clip(p.Kind), form)
	}
	switch p.Class {
	case workload.LSE.String():
		return workload.LSE, nil
	case workload.LSR.String():
		return workload.LSR, nil
	}
	return 0, fmt.Errorf("the parameters have class %q: it must be LSE or LSR", clip(p.Class))
}
