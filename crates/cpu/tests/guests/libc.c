// A little of everything that glibc does: threads, printf and scanf of floats, sorting, strings, libm.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <stdint.h>
static pthread_mutex_t m=PTHREAD_MUTEX_INITIALIZER; static volatile int done; static long total;
static void*work(void*a){ for(int i=0;i<20000;i++){ pthread_mutex_lock(&m); total+=(long)a; pthread_mutex_unlock(&m);} __sync_fetch_and_add(&done,1); return a; }
static int cmp(const void*a,const void*b){ double x=*(double*)a,y=*(double*)b; return (x>y)-(x<y); }
int main(){ pthread_t t[4]; for(long i=0;i<4;i++) pthread_create(&t[i],0,work,(void*)(i+1)); for(int i=0;i<4;i++) pthread_join(t[i],0);
 printf("total %ld done %d\n",total,done);
 double v[100]; srand(7); for(int i=0;i<100;i++) v[i]=sin(i)*exp(i/20.0)+rand()%100; qsort(v,100,sizeof*v,cmp); for(int i=0;i<100;i+=9) printf("%.17g %a %e\n",v[i],v[i],v[i]);
 char b[256]; snprintf(b,sizeof b,"%s-%08x-%lld-%5.2f","abc",0xdeadbeef,-123456789012345LL,3.14159); puts(b);
 printf("%f %g\n",strtod("1.2345e10",0),strtod("-0.1",0)); printf("%d %ld\n",atoi("123"),strtol("-77",0,10));
 char*p=malloc(100000); memset(p,'x',99999); p[99999]=0; printf("%zu %p\n",strlen(p),strchr(p,'y')); char*q=strdup(p); printf("%d\n",strcmp(p,q)); q[5]='y'; printf("%d\n",strcmp(p,q)<0); memmove(p+3,p,5000); free(p);
 printf("%.10f %.10f %.10f %.10f\n",pow(2.5,3.3),log(10),atan2(1,3),fmod(10.5,3)); float f=1.1f; for(int i=0;i<10;i++) f=f*1.5f-0.3f; printf("%f %d\n",f,(int)f);
 __int128 z=(__int128)1<<100; z/=12345; printf("%lx %lx\n",(long)z,(long)(z>>64)); printf("%s\n",strstr("hello world foo","world"));
 return 0; }
