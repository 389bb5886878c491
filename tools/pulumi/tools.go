//go:build tools

// Package tools pins the Pulumi CLI: go.mod names its version, and nothing else in the project does.
package tools

import _ "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
