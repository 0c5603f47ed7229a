// Package configs holds the files that are shipped beside the program.
package configs

import _ "embed"

//go:embed sluice.schema.json
var schema string

// Schema is the JSON schema of sluice.yaml, which pkg/config's tests keep up to date.
func Schema() []byte { return []byte(schema) }
