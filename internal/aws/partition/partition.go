// Package partition knows the partition of AWS that a region is in: the second part of every ARN there.
package partition

import "strings"

// Standard is the partition of all regions that no other partition claims by its prefix.
const Standard = "aws"

// prefixes are those of the regions of the other partitions, as the endpoint rules of the AWS SDKs have them.
var prefixes = []struct{ region, partition string }{
	{"cn-", "aws-cn"},
	{"us-gov-", "aws-us-gov"},
	{"us-isob-", "aws-iso-b"},
	{"us-isof-", "aws-iso-f"},
	{"eu-isoe-", "aws-iso-e"},
	{"us-iso-", "aws-iso"},
	{"eusc-", "aws-eusc"},
}

// Of is the partition of a region.
func Of(region string) string {
	for _, p := range prefixes {
		if strings.HasPrefix(region, p.region) {
			return p.partition
		}
	}
	return Standard
}
