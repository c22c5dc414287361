package awsim

import (
	"strings"

	"github.com/dovetail-k8s/dovetail/lab/awsim/zonalshift"
)

// ZonalShifts is the part of the account that shifts traffic away from zones. The resources are its EKS clusters.
func (s *Sim) ZonalShifts() *zonalshift.Shifts { return s.shifts }

// managed reports whether an ARN is that of an EKS cluster of the account.
func (s *Sim) managed(arn string) bool {
	c, ok := s.eks.Cluster(arn[strings.LastIndexByte(arn, '/')+1:])
	return ok && c.ARN == arn
}

func (s *Sim) zoneIDs() []string {
	var out []string
	for _, z := range s.ec2.Zones() {
		out = append(out, z.ID)
	}
	return out
}
