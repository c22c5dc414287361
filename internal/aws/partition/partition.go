// Package partition maps a region to its AWS partition, the second part of every ARN there.
package partition

import "strings"

// Standard is the partition of all regions without a prefix of another partition.
const Standard = "aws"

// prefixes are the region prefixes of the other partitions, as in the endpoint rules of the AWS SDKs.
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
