package awsim_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/credential"
)

// An EC2 client of the AWS SDK works against an in-memory account. SeedCluster creates the network and roles of an EKS
// cluster in it.
func Example() {
	account, err := awsim.New(awsim.Options{Region: "eu-west-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer account.Close()
	if err := account.SeedCluster(awsim.ClusterSpec{Name: "demo", Version: "1.36", Endpoint: "https://127.0.0.1:1"}); err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(account)
	defer server.Close()

	client := ec2.New(ec2.Options{
		Region: "eu-west-1", BaseEndpoint: aws.String(server.URL),
		Credentials: credentials.NewStaticCredentialsProvider(credential.AdminAccessKeyID, "test", ""),
	})
	subnets, err := client.DescribeSubnets(context.Background(), &ec2.DescribeSubnetsInput{
		Filters: []ec2types.Filter{{Name: aws.String("tag:karpenter.sh/discovery"), Values: []string{"demo"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range subnets.Subnets {
		fmt.Println(aws.ToString(s.AvailabilityZone))
	}
	// Unordered output:
	// eu-west-1a
	// eu-west-1b
	// eu-west-1c
}
