package claim

import (
	"encoding/json"
	"fmt"
	"strings"
)

// spec is a CDI spec (github.com/cncf-tags/container-device-interface, SPEC.md), as far as one for
// a claim needs it.
type spec struct {
	Version     string            `json:"cdiVersion"`
	Kind        string            `json:"kind"`
	Annotations map[string]string `json:"annotations"`
	Devices     []specDevice      `json:"devices"`
}

type specDevice struct {
	Name  string `json:"name"`
	Edits struct {
		Env []string `json:"env"`
	} `json:"containerEdits"`
}

// annotated is the key of the annotation that has the claim.
const annotated = Driver + "/claim"

// filePrefix and fileSuffix are around a claim's UID in the name of its spec's file.
const filePrefix, fileSuffix = "cpus.sluice.dev-claim_", ".json"

// FileOf is the name of the file with the CDI spec of a claim.
func FileOf(uid string) string { return filePrefix + uid + fileSuffix }

// IsFile reports whether a file of that name has the spec of a claim.
func IsFile(name string) bool {
	return strings.HasPrefix(name, filePrefix) && strings.HasSuffix(name, fileSuffix)
}

// Spec is the CDI spec of a claim whose CPUs are reserved. Its devices tell a container its CPUs in
// a variable of its environment, which is for the program alone: Sluice goes by the device's name.
func (c *Claim) Spec() ([]byte, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	s := spec{Version: "0.6.0", Kind: Kind, Annotations: map[string]string{annotated: string(text)}}
	for i, d := range c.Devices {
		device := specDevice{Name: c.ID(i)}
		device.Edits.Env = []string{"SLUICE_CLAIM_" + strings.ToUpper(strings.ReplaceAll(c.ID(i), "-", "_")) + "=" + d.Reserved.String()}
		s.Devices = append(s.Devices, device)
	}
	return json.Marshal(s)
}

// ReadSpec reads the claim of a CDI spec that Spec has made.
func ReadSpec(data []byte) (*Claim, error) {
	if len(data) > 2*MaxMessage {
		return nil, fmt.Errorf("a CDI spec of a claim has %d bytes, at most %d are allowed", len(data), 2*MaxMessage)
	}
	var s spec
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("a CDI spec is a JSON object: %w", err)
	}
	if s.Kind != Kind {
		return nil, fmt.Errorf("the CDI spec is of kind %q, want %s", clip(s.Kind), Kind)
	}
	c, err := Decode([]byte(s.Annotations[annotated]))
	if err != nil {
		return nil, fmt.Errorf("annotation %s of the CDI spec: %w", annotated, err)
	}
	for i, d := range c.Devices {
		if d.Reserved.Size() < max(1, d.CPUs) { // more are siblings that were offline at first
			return nil, fmt.Errorf("%s: devices[%d] has CPUs %s, and must have %d", c.Ref(), i, d.Reserved, d.CPUs)
		}
	}
	return c, nil
}
