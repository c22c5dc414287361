package ec2

import (
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// RateLimit is the rate limit of an account's default ones that an action counts against.
func RateLimit(action string) protocol.Bucket { return bucketOf(action) }

// bucketOf returns which rate limit of an account's default ones an action counts against.
func bucketOf(action string) protocol.Bucket {
	switch {
	case action == "RunInstances" || action == "StartInstances":
		return protocol.Bucket{Name: action, Rate: 2, Burst: 5}
	case action == "TerminateInstances":
		return protocol.Bucket{Name: action, Rate: 5, Burst: 100}
	case action == "CreateTags":
		return protocol.Bucket{Name: action, Rate: 10, Burst: 100}
	case strings.HasPrefix(action, "Describe") || strings.HasPrefix(action, "Get"):
		return protocol.Bucket{Name: "read", Rate: 20, Burst: 100}
	default:
		return protocol.Bucket{Name: "write", Rate: 5, Burst: 50}
	}
}
