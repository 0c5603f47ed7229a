module github.com/sluice-dev/sluice/test/sbom

go 1.26.0

require (
	github.com/CycloneDX/cyclonedx-go v0.9.2
	github.com/google/licensecheck v0.3.1
)
