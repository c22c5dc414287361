package partition

import "testing"

func TestPartitionFollowsFromTheRegion(t *testing.T) {
	for region, want := range map[string]string{
		"us-east-1": "aws", "eu-west-1": "aws", "il-central-1": "aws", "": "aws", "*": "aws",
		"cn-north-1": "aws-cn", "cn-northwest-1": "aws-cn", "us-gov-west-1": "aws-us-gov", "us-gov-east-1": "aws-us-gov",
		"us-iso-east-1": "aws-iso", "us-isob-east-1": "aws-iso-b", "us-isof-south-1": "aws-iso-f", "eu-isoe-west-1": "aws-iso-e",
		"eusc-de-east-1": "aws-eusc",
	} {
		if got := Of(region); got != want {
			t.Errorf("region %q is in %s, want %s", region, got, want)
		}
	}
}
