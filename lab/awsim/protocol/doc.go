// Package protocol implements the protocols of the AWS APIs, so that a simulated service is a table of handlers.
//
// A Service has a name (as it stands in the SigV4 credential scope), a Protocol, and a Handler per action. The Server
// routes a request by the service and region of its signature, finds the action, resolves the access key to a
// Principal, runs the handler, encodes what it returns or the Error in the service's protocol, and logs the Call.
// Faults are injected here, before or after the effect, so that no service knows of them.
//
//	EC2Query   form in, XML out, flat lists, <Response><Errors>           EC2
//	AWSQuery   form in, XML out, lists with "member", <ErrorResponse>     IAM, STS
//	JSON10     JSON, action in X-Amz-Target                               SQS
//	JSON11     JSON, action in X-Amz-Target                               SSM, Pricing
//	RESTJSON   JSON, action by method and path                            EKS
package protocol
