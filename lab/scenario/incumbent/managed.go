package incumbent

import (
	"context"
	"encoding/base64"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// managedType has room for the controllers of a cluster.
const managedType = ec2types.InstanceTypeM5Large

// LaunchManaged launches a node as a managed node group of EKS does, for what may not run on nodes of a NodePool: controllers, above all.
// It has the image, network and role of the NodePool's EC2NodeClass, which must be resolved.
func (c *Controller) LaunchManaged(ctx context.Context, pool string) error {
	_, class, err := c.poolAndClass(ctx, pool)
	if err != nil {
		return err
	}
	status, err := readStatus(class)
	if err != nil {
		return err
	}
	image, err := status.image()
	if err != nil {
		return err
	}
	_, err = c.EC2.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: &image, InstanceType: managedType, MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		SubnetId: &status.Subnets[0].ID, SecurityGroupIds: status.groups(),
		IamInstanceProfile: &ec2types.IamInstanceProfileSpecification{Name: &status.InstanceProfile},
		UserData:           aws.String(base64.StdEncoding.EncodeToString([]byte(c.managedUserData()))),
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeInstance, Tags: ec2Tags(map[string]string{
			"eks:cluster-name": c.Cluster, "eks:nodegroup-name": "system",
		})}},
	})
	if err != nil {
		return fmt.Errorf("launch a node of the managed node group: %w", err)
	}
	return nil
}

func (c *Controller) managedUserData() string {
	return fmt.Sprintf(`MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    apiServerEndpoint: %s
    certificateAuthority: %s
    cidr: %s
    name: %s
  kubelet:
    config:
      registerWithTaints:
      - effect: NoSchedule
        key: CriticalAddonsOnly
        value: "true"
    flags:
    - --node-labels=eks.amazonaws.com/nodegroup=system
--//--
`, *c.cluster.Endpoint, *c.cluster.CertificateAuthority.Data, *c.cluster.KubernetesNetworkConfig.ServiceIpv4Cidr, c.Cluster)
}
